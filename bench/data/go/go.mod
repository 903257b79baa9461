module traffic

go 1.24
