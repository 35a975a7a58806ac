"""At which exact values of an axis does a metric jump?

`further` says what to measure next, `judge` what it all means; both are functions of the question and the readings
alone, so that a search that was killed is replayed and comes to the same.

**What counts as a jump.** A curve is taken to be made of smooth regimes. A gap between two measured values is suspected
of a border when the lines on which the curve comes to it from both sides do not meet within the gap. The secants of
every convex or concave curve do meet there, however far apart its values were measured: Amdahl's law, the universal
scalability law, a saturating or capped curve need no model of their own, and are not taken for jumps where they are
steep. A border that is one step wide is a jump if the metric changes across it by `min_jump` more than the trend.

**Where to look.** The range is cut into eight parts, at places moved off an even spacing by an irrational sequence, so
that no period can hide. Suspected gaps are bisected, the worst first, but a round number (200, 128) or the rhythm of
the jumps already found is tried before the middle: program constants are round. Gaps that are too wide, too bent, or
that have too little around them are looked into as well. Sampling where interpolation fails, rather than on a grid, is
how adaptive samplers of curves work (Nijholt et al., Adaptive, 2019, doi:10.5281/zenodo.1182437); the borders are
found one by one, each time judged anew, by binary segmentation (Vostrikova, 1981).

**Noise.** The relative standard deviation is pooled over repeats, from a prior of 3 %. Lines are then fitted by least
squares to more values, as long as these lie on a line within the noise; a border is suspected, and named, only where
it exceeds its standard error by normal quantiles corrected for the number of gaps and looks. Values are measured again
only where that decides something: on an unclear side of a border, beside a jump, and around gaps in which noise might
hide a jump worth naming. Where the repeats are used up, an interval is named instead of a place.

**What can be missed.** Two borders between neighbouring measured values that cancel: a regime narrower than
`Threshold.widest` steps, at most 15 % of the range where the budget suffices, may go unseen, and so may any regime
narrower than four steps, which counts as part of a curve. At the very end of the range a border is judged from one
side only, and one that the curve beyond makes look steep is missed.

How often the answer is right is measured by tests/benchmarks/bench_threshold.py, and listed in docs/studies.md.
"""
