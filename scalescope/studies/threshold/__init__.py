"""At which exact values of an axis does a metric jump? docs/decisions/0009-thresholds.md gives the reasons.

A curve is made of smooth regimes. A gap between two measured values may hold a border if the lines on which the curve
comes to it from both sides do not meet within the gap. The secants of every convex or concave curve meet there:
Amdahl's law, the universal scalability law and a capped curve are not taken for jumps. A border one step wide is a jump
if the metric changes across it by `min_jump` more than the trend.

`search.further` cuts the range into eight uneven parts, in which no period can hide, then bisects the worst gap, trying
the rhythm of known jumps, then round numbers (200, 128), before the middle. Gaps too wide, too bent, or with too little
around them are looked into too (adaptive sampling: Nijholt et al., 2019, doi:10.5281/zenodo.1182437; binary
segmentation: Vostrikova, 1981).

Under noise, the relative standard deviation is pooled over repeats, from a prior of 3 %; a border must exceed its
standard error by normal quantiles corrected for the number of gaps and looks. If repeats run out, an interval is named.

The search can miss a regime narrower than four steps or than `Threshold.widest` steps (at most 15 % of the range if the
budget suffices), and a border at an end of the range where the curve is steep.
"""
