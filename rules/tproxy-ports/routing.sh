ip -4 route add local default dev lo table 200 proto 150
ip -4 rule add fwmark 512 lookup 200 priority 1337 protocol 150
