module argosy.dev/kubernetes/pause

go 1.26.0
