"""The doctor: what this machine offers to a run, what it lacks, and what to do about it.

from tianji.tools import doctor

for section in doctor.examine():
for finding in section.findings:
print(section.name, finding.verdict.value, finding.what, finding.found, finding.advice)
"""

from __future__ import annotations

from tianji.tools.doctor.examine import examine
from tianji.tools.doctor.finding import Finding, Section, Verdict

__all__ = ["Finding", "Section", "Verdict", "examine"]
