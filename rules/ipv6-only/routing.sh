ip -6 addr replace ::6/128 dev lo proto 150
