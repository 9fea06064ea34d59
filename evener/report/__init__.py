"""Timelines for people: one HTML file, a text, or plain data, all of the same content."""

from evener.report.data import ReportData, build_report, report_json
from evener.report.html import render_html, write_report
from evener.report.picture import timeline_svg
from evener.report.summary import Summary, summary_of_plan
from evener.report.text import render_text, timeline_text

__all__ = [
    "ReportData",
    "Summary",
    "build_report",
    "render_html",
    "render_text",
    "report_json",
    "summary_of_plan",
    "timeline_svg",
    "timeline_text",
    "write_report",
]
