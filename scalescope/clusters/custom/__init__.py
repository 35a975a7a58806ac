"""Any cluster class that can be imported."""
