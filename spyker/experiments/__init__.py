"""Many runs for one question: sweeps over parameters, and the paper's tables and figures."""
