"""The parts of the benchmarks that need no broker. tests/e2e runs each scenario with one."""
