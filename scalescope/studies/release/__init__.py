"""Which release of a package moved a metric, or brought a finding?"""
