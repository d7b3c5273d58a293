ip -6 addr add ::6/128 dev lo proto 150
