"""The kill matrix: jobs on a real service are disturbed in every way there is, and judged afterwards."""
