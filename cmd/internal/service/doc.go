// Package service is the common part of the programs here: command lines, settings, Redis
// clients, HTTP, logs, start and stop. A program supplies its table of settings and a function
// that serves:
//
//	func main() { service.Main(program()) }
//
//	func program() *service.Command {
//		var s settings // has a service.Base and the program's own settings
//		c := &service.Command{
//			Name: "program", About: "program does this and that.",
//			Settings: slices.Concat(s.Base.Table(), []service.Setting{
//				{Name: "PAGE", Default: "100", Value: service.Number(&s.page, 1, 1000),
//					Meaning: "Entries a page."},
//			}),
//		}
//		c.Run = service.Serving(c, &s.Base, func(ctx context.Context, log *slog.Logger) error {
//			return serve(ctx, &s, log)
//		})
//		return c
//	}
//
// serve connects ([Open]), checks that the server can be used ([Inspect]), opens HTTP
// ([ListenHTTP]), begins its parts and stops them one after the other ([Parts]).
//
// # Settings
//
// A setting has one name: HEARTBEAT_TTL in the environment is --heartbeat-ttl as a flag, and a
// flag wins. A malformed value is a fault, and never a silent default. All faults are reported
// together, so that an operator corrects a deployment once.
//
// REDIS_URL has no default: a misspelt variable must not start a replica that is alone with a
// Redis of its own. That one has to be named, as [EmbeddedRedis].
//
// REDIS_URL and ADMIN_TOKEN hold secrets: no error, help text or log line of this package repeats
// any part of their values.
//
// # Exit status
//
// 0 on success, including a graceful stop; 1 after a failure at run time; 2 if arguments or
// settings are wrong.
package service
