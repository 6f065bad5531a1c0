"""What ``spyker doctor`` looks at: whether everything is here that Spyker needs, each finding with its remedy.

Something is *wrong* if Spyker, or the deployment that was asked about, cannot work with it; a *note* is about what only
some commands need, or what will be wrong one day.
"""

from spyker.api.doctor.finding import Finding, Severity
from spyker.api.doctor.places import examine

__all__ = ["Finding", "Severity", "examine"]
