module github.com/rollcall-redis/rollcall/test

go 1.26.0

require (
	github.com/redis/go-redis/v9 v9.23.0
	github.com/rollcall-redis/rollcall v0.0.0
	github.com/rollcall-redis/rollcall/chaos v0.0.0
	github.com/sourcegraph/conc v0.3.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-redsync/redsync/v4 v4.18.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/rollcall-redis/rollcall => ..

replace github.com/rollcall-redis/rollcall/orphan/mongodb => ../orphan/mongodb

replace github.com/rollcall-redis/rollcall/chaos => ../chaos

replace github.com/rollcall-redis/rollcall/availability => ../availability
