"""Long jobs: a call begins one and is answered at once; its progress and result are a resource of their own."""
