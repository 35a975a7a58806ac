"""At which exact values of an axis does a metric jump?

`search.further` says what to measure next, `judge.judge` what it all means: functions of the question and the readings
alone, so that a search that was killed comes to the same.

**A jump.** A curve is made of smooth regimes. A gap between two measured values is suspected of a border if the lines
on which the curve comes to it from both sides do not meet within the gap. The secants of every convex or concave curve
meet there: Amdahl's law, the universal scalability law, a capped curve need no model and are not taken for jumps. A
border that is one step wide is a jump if the metric changes across it by `min_jump` more than the trend.

**Where to look.** In eight parts of the range, at uneven distances, so that no period can hide; then by bisection of
the worst suspected gap, where the rhythm of the jumps found is tried before the middle.
Gaps that are too wide, too bent, or have too little around them are looked into as well (adaptive sampling: Nijholt et
al., 2019, doi:10.5281/zenodo.1182437; binary segmentation: Vostrikova, 1981).
docs/decisions/0009-thresholds.md says why plain bisection does not do.

**Noise.** The relative standard deviation is pooled over repeats, from a prior of 3 %. Under noise, lines are fitted to
more values, and a border must exceed its standard error by normal quantiles corrected for the number of gaps and looks.
A value is measured again only if that decides something; if the repeats are used up, an interval is named.

**What can be missed.** A regime narrower than `Threshold.widest` steps (at most 15 % of the range if the budget
suffices) or than four steps, and a border at the very end of the range that the curve beyond it makes look steep.
"""
