"""Many runs for one question: each scenario runs once, in a process of its own, and a stopped sweep resumes."""
