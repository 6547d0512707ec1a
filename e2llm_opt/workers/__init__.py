"""Running one function on many items: on the cores of this machine, or on a Dask cluster."""
