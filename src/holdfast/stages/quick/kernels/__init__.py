"""What is compiled: functions over arrays that are given, which allocate nothing. They import numba."""
