"""Every schedule by name.  A new one is a new file and one line here."""

from collections.abc import Mapping
from types import MappingProxyType

from evener.schedules.adaptis_greedy import ADAPTIS_GREEDY
from evener.schedules.adaptra import ADAPTRA
from evener.schedules.amdp import AMDP_2, AMDP_4
from evener.schedules.bitpipe import BITPIPE
from evener.schedules.chimera import CHIMERA
from evener.schedules.cross_pipe_ud import CROSS_PIPE_UD
from evener.schedules.cross_pipe_udsub import CROSS_PIPE_UDSUB
from evener.schedules.cross_pipe_wave import CROSS_PIPE_WAVE
from evener.schedules.dualpipe_v import DUALPIPE_V
from evener.schedules.entry import ScheduleEntry
from evener.schedules.gpipe import GPIPE
from evener.schedules.hanayo import HANAYO
from evener.schedules.interleaved_one_f_one_b import INTERLEAVED_ONE_F_ONE_B
from evener.schedules.mini_stage_gpipe import MINI_STAGE_GPIPE
from evener.schedules.one_f_one_b import ONE_F_ONE_B
from evener.schedules.pipedream_2bw import PIPEDREAM_2BW
from evener.schedules.seq1f1b import SEQ1F1B
from evener.schedules.seq1f1b_interleaved import SEQ1F1B_INTERLEAVED
from evener.schedules.seq1f1b_zb import SEQ1F1B_ZB
from evener.schedules.slimpipe import SLIMPIPE
from evener.schedules.sppo import SPPO
from evener.schedules.stp import STP
from evener.schedules.terapipe import TERAPIPE
from evener.schedules.v_half import V_HALF
from evener.schedules.v_min import V_MIN
from evener.schedules.zb_1p import ZB_1P
from evener.schedules.zb_2p import ZB_2P
from evener.schedules.zb_h1 import ZB_H1
from evener.schedules.zb_h2 import ZB_H2
from evener.schedules.zb_v import ZB_V

SCHEDULES: Mapping[str, ScheduleEntry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            GPIPE,
            ONE_F_ONE_B,
            INTERLEAVED_ONE_F_ONE_B,
            ZB_H1,
            ZB_H2,
            ZB_1P,
            ZB_2P,
            ZB_V,
            V_HALF,
            V_MIN,
            CHIMERA,
            BITPIPE,
            HANAYO,
            MINI_STAGE_GPIPE,
            DUALPIPE_V,
            STP,
            ADAPTRA,
            ADAPTIS_GREEDY,
            CROSS_PIPE_UD,
            CROSS_PIPE_UDSUB,
            CROSS_PIPE_WAVE,
            SEQ1F1B,
            SEQ1F1B_INTERLEAVED,
            SEQ1F1B_ZB,
            TERAPIPE,
            SLIMPIPE,
            SPPO,
            AMDP_2,
            AMDP_4,
            PIPEDREAM_2BW,
        )
    }
)
