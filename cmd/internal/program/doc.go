// Package program is what programs have in common: the settings of each ([Base]) and of a replica
// among others ([Fleet]), how they log start and end ([Serving]), and their life
// ([Program.Serve]), whose parts stop one after the other:
//
//	func main() { cli.Main(command()) }
//
//	func command() *cli.Command {
//		var s settings // has a program.Base, a program.Fleet and the program's own settings
//		c := &cli.Command{Name: "example", Settings: s.table()}
//		c.Run = program.Serving(c, &s.Base, program.Program{Name: "example", Base: &s.Base, Fleet: &s.Fleet}.Serve)
//		return c
//	}
package program
