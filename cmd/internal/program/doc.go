// Package program is what programs that serve have in common: their settings ([Base]), how they log
// start and end ([Serving]), and how their parts stop one after the other ([Parts]):
//
//	func main() { cli.Main(command()) }
//
//	func command() *cli.Command {
//		var s settings // has a program.Base and the program's own settings
//		c := &cli.Command{
//			Name: "example", About: "example does this and that.",
//			Settings: slices.Concat(s.Base.Table(), []cli.Setting{
//				{Name: "PAGE", Default: "100", Value: cli.Number(&s.page, 1, 1000),
//					Meaning: "Entries a page."},
//			}),
//		}
//		c.Run = program.Serving(c, &s.Base, func(ctx context.Context, log *slog.Logger) error {
//			return serve(ctx, &s, log)
//		})
//		return c
//	}
//
// serve connects ([connect.Open]), checks that the server can be used ([connect.Inspect]), opens
// HTTP ([console.ListenHTTP]) and runs its Parts.
package program
