from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener import units
from evener.units import Quantity, UnitError

KINDS = pytest.mark.parametrize("kind", units.QUANTITIES, ids=lambda kind: kind.name)
COUNTS = st.integers(0, 2**63 - 1)

WRITE_BYTES = (
    'write an amount of memory such as "80 GiB" or "24 GB" '
    "(units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)"
)
WRITE_NS = 'write a time such as "5 us" or "1.5 ms" (units: ns, us, ms, s, min, h)'
WRITE_RATE = (
    'write a bandwidth such as "400 Gbit/s" or "600 GB/s" (units: B/s, kB/s, MB/s, GB/s, TB/s, '
    "KiB/s, MiB/s, GiB/s, kbit/s, Mbit/s, Gbit/s, Tbit/s)"
)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (units.parse_bytes, "80 GiB", 80 * 2**30),
        (units.parse_bytes, "24GB", 24 * 10**9),
        (units.parse_bytes, " 1_000  kB ", 1_000_000),
        (units.parse_bytes, "1.5e3 MB", 1_500_000_000),
        (units.parse_bytes, "0 B", 0),
        # 0.3 GiB is 322122547.2 bytes: the fifth of a byte is far below a millionth of it.
        (units.parse_bytes, "0.3 GiB", 322_122_547),
        (units.parse_bytes_per_s, "400 Gbit/s", 50 * 10**9),
        (units.parse_bytes_per_s, "600 GB/s", 600 * 10**9),
        (units.parse_ns, "5 us", 5_000),
        (units.parse_ns, "1.5 ms", 1_500_000),
        (units.parse_ns, "2 s", 2 * 10**9),
        (units.parse_ns, "10 ns", 10),
        (units.parse_flops_per_s, "989 TFLOP/s", 989 * 10**12),
        (units.parse_micro_usd_per_h, "2.49 USD/h", 2_490_000),
    ],
)
def test_parse(parse, text: str, expected: int) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (units.parse_bytes, "80 Gib", 'has the unknown unit "Gib"; did you mean "GiB"? '),
        (units.parse_bytes, "80 KB", 'has the unknown unit "KB"; did you mean "kB"? '),
        (units.parse_bytes, "80 gigs", 'has the unknown unit "gigs"; '),
        (units.parse_bytes, "80", "has no unit; "),
        (units.parse_bytes, "80 us", "is a time, not an amount of memory; "),
        (units.parse_bytes, "-5 GB", "is negative; "),
        (units.parse_bytes, "1.5 B", "is not a whole number of bytes; "),
        (units.parse_bytes, "9.3e18 B", "is more than 2^63 - 1 bytes; "),
        (units.parse_bytes, "1e400 GB", "is more than 2^63 - 1 bytes; "),
        (units.parse_bytes, "nan GB", "is not a number with a unit; "),
        (units.parse_bytes, "inf", "is not a number with a unit; "),
        (units.parse_bytes, "", "is not a number with a unit; "),
        (units.parse_bytes, "1,5 GB", "is not a number with a unit; "),
        (units.parse_bytes, ".5 GB", "is not a number with a unit; "),
        (units.parse_ns, "0.4 ns", "is not a whole number of nanoseconds; "),
        (units.parse_ns, "5 \N{MICRO SIGN}s", 'has the unknown unit "µs"; did you mean "us"? '),
        (units.parse_bytes_per_s, "80 GB", "is an amount of memory, not a bandwidth; "),
        (
            units.parse_bytes_per_s,
            "400 Gbps",
            'has the unknown unit "Gbps"; did you mean "GB/s" or "Gbit/s"? ',
        ),
        (
            units.parse_bytes_per_s,
            "10 gbits/s",
            'has the unknown unit "gbits/s"; did you mean "Gbit/s"? ',
        ),
    ],
)
def test_refused_text_is_named_with_the_way_out(parse, text: str, message: str) -> None:
    advice = {units.parse_bytes: WRITE_BYTES, units.parse_ns: WRITE_NS}.get(parse, WRITE_RATE)
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert str(caught.value) == f'"{text}" {message}{advice}'


def test_numbers_of_thousands_of_digits_are_refused() -> None:
    for text in (f"{'9' * 5000} GiB", f"0.{'9' * 5000} GiB", f"{'9_9' * 2500} GiB"):
        with pytest.raises(UnitError) as caught:
            units.parse_bytes(text)
        assert str(caught.value) == (
            f"999999999... is a number of 5000 digits: write at most 100; {WRITE_BYTES}"
        )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (80, "80 has no unit; "),
        (float("nan"), "nan has no unit; "),
        (True, "True is not a number with a unit; "),
        (None, "None is not a number with a unit; "),
    ],
)
def test_refused_value_that_is_no_text(value: object, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_bytes(value)
    assert str(caught.value) == message + WRITE_BYTES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_bytes(80 * 2**30), "80 GiB"),
        (units.format_bytes(24 * 10**9), "24 GB"),
        (units.format_bytes(123_456_789), "123456789 B"),
        (units.format_bytes(24 * 10**9, 3), "22.4 GiB"),  # 24e9 / 2^30 = 22.35
        (units.format_bytes(1023 * 2**20, 3), "1020 MiB"),
        (units.format_ns(1_500_000), "1.5 ms"),
        (units.format_ns(90 * 10**9), "90 s"),
        (units.format_ns(1234.56, 4), "1.235 us"),
        (units.format_ns(0, 3), "0 ns"),
        (units.format_bytes_per_s(50 * 10**9), "50 GB/s"),
        (units.format_flops_per_s(989 * 10**12), "989 TFLOP/s"),
        (units.format_micro_usd_per_h(2_490_000), "2.49 USD/h"),
    ],
)
def test_format(text: str, expected: str) -> None:
    assert text == expected


@KINDS
@given(value=COUNTS)
def test_exact_text_parses_back(kind: Quantity, value: int) -> None:
    assert kind.parse(kind.format(value)) == value


@KINDS
@given(value=st.integers(0, 2**62), digits=st.integers(2, 9))
def test_rounded_text_is_near(kind: Quantity, value: int, digits: int) -> None:
    number, unit = kind.format(value, digits).split()
    # Half a unit of the last place is at most that part of the value.
    assert abs(Fraction(number) * kind.units[unit] - value) <= value * Fraction(10) ** (1 - digits)


@KINDS
@given(data=st.data(), number=st.decimals(0, 10**6, places=3))
def test_parsed_number_is_exact_or_refused(kind: Quantity, data: st.DataObject, number) -> None:
    unit = data.draw(st.sampled_from(sorted(kind.units)))
    exact = Fraction(number) * kind.units[unit]
    try:
        parsed = kind.parse(f"{number} {unit}")
    except UnitError as error:
        assert "whole number" in str(error) or "2^63" in str(error)
    else:
        assert abs(parsed - exact) * 1_000_000 <= exact


@KINDS
@given(text=st.text(max_size=20))
def test_any_text_is_a_count_or_a_unit_error(kind: Quantity, text: str) -> None:
    try:
        assert 0 <= kind.parse(text) < 2**63
    except UnitError as error:
        assert f'"{text}"' in str(error)


@KINDS
def test_examples_and_display_units_are_of_the_kind(kind: Quantity) -> None:
    assert all(kind.parse(example) >= 0 for example in kind.examples)
    sizes = [kind.units[unit] for unit in kind.display]
    assert sizes == sorted(sizes)
