"""The mini node: a kubelet, a kube-proxy, a cluster DNS and a load balancer in little, with pods as processes in namespaces.

node.py        watches, binds pods to itself, gives each object to the part that does the work
pod.py         one pod's life: volumes, network namespace, containers, status, end
container.py   one container's life: start, probes, restarts, end      launch.py  becomes the container's first process
volumes.py     what a volume's files are (payload.py) and the kubelet's atomic swap (atomic.py)
services.py    Service addresses to pod addresses (nft)                 dns.py     <service>.<namespace>.svc
addresses.py   addresses of LoadBalancer Services
logs.py        container logs, for the API server to fetch
"""
