module lab.kubeops.io/web

go 1.24

tool lab.kubeops.io/web
