"""At which exact values of an axis does a metric jump? docs/decisions/0009-thresholds.md explains this method.

The curve consists of smooth pieces (regimes). The gap between two neighbouring measured values may hold a border of
regimes if the lines that extend the curve from both sides do not meet within the gap. Such lines meet for every convex
or concave curve, so Amdahl's law, the universal scalability law and a capped curve are not taken for jumps. A border
one step wide is a jump if the metric changes across it by at least `min_jump` more than the trend explains.

`search.further` cuts the range into eight uneven parts, so that a periodic curve does not look smooth. Then it bisects
the worst gap: it tries the distance of known jumps first, then round numbers (200, 128), then the middle. It also tries
gaps that are too wide, too bent, or have too few values around them (adaptive sampling: Nijholt et al., 2019,
doi:10.5281/zenodo.1182437; binary segmentation: Vostrikova, 1981).

Under noise, the relative standard deviation is pooled over repeats and a prior of 3 %. A jump must exceed its standard
error times a normal quantile, corrected for the number of gaps and looks. If repeats run out, an interval is reported.

The search can miss a regime narrower than four steps or than `Threshold.widest` steps (at most 15 % of the range if the
budget suffices), and a border at an end of the range where the curve is steep.
"""
