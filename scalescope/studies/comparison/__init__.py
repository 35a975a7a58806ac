"""Is B slower than A?"""
