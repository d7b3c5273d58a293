ip -6 addr add ::6/128 dev lo proto 150
ip -4 route add local default dev lo table 133 proto 150
ip -4 rule add fwmark 1337 lookup 133 priority 1337 protocol 150
ip -6 route add local default dev lo table 133 proto 150
ip -6 rule add fwmark 1337 lookup 133 priority 1337 protocol 150
