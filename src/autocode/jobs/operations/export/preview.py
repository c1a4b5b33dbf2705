class Preview: pass
def preview(*a): raise NotImplementedError
