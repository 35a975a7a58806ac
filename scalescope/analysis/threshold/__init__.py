"""At which exact values of an axis does a metric jump?

(docstring to come)
"""

from scalescope.analysis.threshold.judge import Jump, Shape, Threshold, Unresolved, judge
from scalescope.analysis.threshold.question import Question, Reading
from scalescope.analysis.threshold.search import further

__all__ = ["Jump", "Question", "Reading", "Shape", "Threshold", "Unresolved", "further", "judge"]
