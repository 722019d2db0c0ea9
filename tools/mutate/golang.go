package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// flips moves the border of orders and keeps their direction: the border is what tests miss.
var flips = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// goMutants lists the changes of a Go file:
//
//   - A condition is negated, an operator is flipped, true and false are swapped, a whole number
//     is changed by one.
//   - A statement is dropped: a call, an assignment, break, continue, defer, go, a send, an else.
//   - One of the results of a return becomes the zero value: nil for an error.
//
// It leaves alone what no test should look at: logs, the text of errors, descriptions of metrics,
// failpoints, capacities, and values that somebody chose (constants, durations in seconds). It
// also leaves locks to the race detector, and changes without consequences:
//
//   - A zero beside an error: nobody reads a result that nobody filled.
//   - A nanosecond: the zero that a duration is compared with does not become one.
//   - The border between two times, one of them read from the clock: nobody hits that nanosecond.
//   - A deferred Stop of a timer with a channel, and a deferred cancel: they free memory.
func goMutants(p *pkg, name string) []mutant {
	w := &walk{pkg: p, src: p.texts[name], at: func(at token.Pos) int { return p.fset.Position(at).Offset }}
	ast.Inspect(p.files[name], w.visit)
	return w.found
}

type walk struct {
	*pkg
	src   string
	at    func(token.Pos) int
	path  []ast.Node // from the file to the present node
	found []mutant
}

func (w *walk) text(n ast.Node) string { return w.src[w.at(n.Pos()):w.at(n.End())] }

func (w *walk) add(from, to token.Pos, text string) {
	w.found = append(w.found, mutant{start: w.at(from), end: w.at(to), text: text})
}

func (w *walk) replace(n ast.Node, text string) { w.add(n.Pos(), n.End(), text) }

func (w *walk) operator(pos token.Pos, op token.Token) {
	if other, ok := flips[op]; ok {
		w.add(pos, pos+token.Pos(len(op.String())), other.String())
	}
}

func (w *walk) visit(n ast.Node) bool {
	if n == nil {
		w.path = w.path[:len(w.path)-1]
		return true
	}
	if w.skip(n) {
		return false
	}
	if in, ok := w.parent(0).(*ast.IfStmt); ok && in.Cond == n && w.asksForLog(in) {
		return false
	}
	switch n := n.(type) {
	case *ast.BlockStmt:
		w.statements(n.List)
	case *ast.CaseClause:
		w.statements(n.Body)
	case *ast.CommClause:
		w.statements(n.Body)
	case *ast.IfStmt:
		if !w.asksForLog(n) {
			w.condition(n.Cond)
		}
		if n.Else != nil {
			w.add(n.Body.End(), n.Else.End(), "")
		}
	case *ast.ForStmt:
		if n.Cond != nil {
			w.condition(n.Cond)
		}
	case *ast.BinaryExpr:
		if !isOrder(n.Op) || !w.isClockTime(n.X, n.Y) && !w.isClockTime(n.Y, n.X) {
			w.operator(n.OpPos, n.Op)
		}
	case *ast.AssignStmt:
		w.operator(n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		w.operator(n.TokPos, n.Tok)
	case *ast.Ident:
		switch {
		case n.Name == "true":
			w.replace(n, "false")
		case n.Name == "false" && !w.besideError(n):
			w.replace(n, "true")
		}
	case *ast.BasicLit:
		v, err := strconv.ParseInt(n.Value, 0, 64)
		if none := v == 0 && (w.isLeastTime(n) || w.besideError(n)); err == nil && !none && !w.chosen() {
			w.replace(n, strconv.FormatInt(v^1, 10)) // 0 and 1, 2 and 3, and so on
		}
	case *ast.ReturnStmt:
		w.results(n)
	}
	w.path = append(w.path, n)
	return true
}

// condition negates everything except a comparison for equality, whose operator is flipped
// anyway.
func (w *walk) condition(cond ast.Expr) {
	if b, ok := cond.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	w.replace(cond, "!("+w.text(cond)+")")
}

func (w *walk) statements(list []ast.Stmt) {
	for _, s := range list {
		if w.skip(s) {
			continue
		}
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.BranchStmt, *ast.GoStmt, *ast.SendStmt:
			w.replace(s, "")
		case *ast.DeferStmt:
			if !w.onlyFrees(s.Call) {
				w.replace(s, "")
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				w.replace(s, "")
			}
		}
	}
}

// results replaces each result of a return with its zero value.
func (w *walk) results(ret *ast.ReturnStmt) {
	var types []ast.Expr
	for _, n := range slices.Backward(w.path) {
		f, ok := n.(*ast.FuncLit)
		d, isDecl := n.(*ast.FuncDecl)
		var list *ast.FieldList
		switch {
		case ok:
			list = f.Type.Results
		case isDecl:
			list = d.Type.Results
		default:
			continue
		}
		if list != nil {
			for _, field := range list.List {
				for range max(1, len(field.Names)) {
					types = append(types, field.Type)
				}
			}
		}
		break
	}
	if len(types) != len(ret.Results) {
		return // none, or the results of a call
	}
	for i, expr := range ret.Results {
		zero, now := w.zero(types[i]), w.text(expr)
		isLiteral := slices.Contains([]string{"nil", "true", "false", `""`}, now) || isNumber(expr)
		if isLiteral || strings.HasSuffix(now, "{}") {
			continue // already zero, or changed in its own right
		}
		if _, made := expr.(*ast.UnaryExpr); made { // a constructor: everybody would notice
			continue
		}
		w.replace(expr, zero)
	}
}

func (w *walk) zero(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.FuncType, *ast.ChanType, *ast.InterfaceType:
		return "nil"
	case *ast.ArrayType:
		if t.Len == nil {
			return "nil"
		}
	case *ast.Ident:
		switch t.Name {
		case "error", "any":
			return "nil"
		case "bool":
			return "false"
		case "string":
			return `""`
		case "int", "int64", "uint64", "float64", "byte":
			return "0"
		}
	}
	return "*new(" + w.text(t) + ")"
}

func (w *walk) skip(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl: // constants, types, imports
		return n.Tok != token.VAR
	case *ast.ExprStmt:
		return w.skip(n.X)
	case *ast.DeferStmt:
		return w.skip(n.Call)
	case *ast.AssignStmt:
		call, ok := n.Rhs[0].(*ast.CallExpr)
		return strings.Contains(w.text(n), "slog.") || ok && (w.logs(call) || w.isFailpoint(call))
	case *ast.BlockStmt: // only logs
		return len(n.List) > 0 && !slices.ContainsFunc(n.List, func(s ast.Stmt) bool { return !w.skip(s) })
	case *ast.SwitchStmt: // likewise
		return n.Init == nil && w.onlyLogs(n.Body)
	case *ast.IfStmt:
		return w.skip(n.Body) && (n.Else == nil || w.skip(n.Else)) && n.Init == nil
	case *ast.CallExpr:
		return w.skipCall(n)
	}
	return false
}

func (w *walk) asksForLog(n *ast.IfStmt) bool { return n.Else == nil && w.skip(n.Body) }

func (w *walk) onlyLogs(body *ast.BlockStmt) bool {
	return !slices.ContainsFunc(body.List, func(s ast.Stmt) bool {
		clause, ok := s.(*ast.CaseClause)
		return !ok || slices.ContainsFunc(clause.Body, func(s ast.Stmt) bool { return !w.skip(s) })
	})
}

func (w *walk) skipCall(call *ast.CallExpr) bool {
	switch name := lastName(call.Fun); name {
	case "Lock", "Unlock", "RLock", "RUnlock", "panic":
		return true
	case "make":
		_, isChan := call.Args[0].(*ast.ChanType)
		return !isChan
	}
	fun := w.text(call.Fun)
	return w.logs(call) || w.isFailpoint(call) || strings.HasPrefix(fun, "prometheus.") ||
		fun == "errors.New" || fun == "fmt.Errorf"
}

func (w *walk) isFailpoint(call *ast.CallExpr) bool {
	return strings.HasPrefix(w.text(call.Fun), "failpoint.")
}

func (w *walk) logs(call *ast.CallExpr) bool {
	name := lastName(call.Fun)
	of := strings.ToLower(strings.TrimSuffix(w.text(call.Fun), name))
	does := slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "With"}, name)
	return does && strings.Contains(of, "log") || name == "log"
}

// chosen by somebody: it counts seconds, for instance.
func (w *walk) chosen() bool {
	b, ok := w.path[len(w.path)-1].(*ast.BinaryExpr)
	return ok && (strings.HasPrefix(w.text(b.X), "time.") || strings.HasPrefix(w.text(b.Y), "time."))
}

func lastName(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

func isNumber(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind != token.STRING
}

func (w *walk) besideError(n ast.Expr) bool {
	ret, ok := w.parent(0).(*ast.ReturnStmt)
	if !ok || ret.Results[len(ret.Results)-1] == n {
		return false
	}
	switch err := ret.Results[len(ret.Results)-1].(type) {
	case *ast.CallExpr:
		fun := w.text(err.Fun)
		return fun == "errors.New" || fun == "fmt.Errorf"
	case *ast.SelectorExpr:
		return w.isSentinel(err.Sel)
	case *ast.Ident:
		return w.isSentinel(err) || w.foundNotNil(err.Name)
	}
	return false
}

func (w *walk) isSentinel(name *ast.Ident) bool {
	v, ok := w.info.Uses[name].(*types.Var)
	return ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() && v.Type().String() == "error"
}

func (w *walk) foundNotNil(name string) bool {
	want := name + " != nil"
	var asks func(cond ast.Expr) bool
	asks = func(cond ast.Expr) bool {
		and, ok := cond.(*ast.BinaryExpr)
		return w.text(cond) == want || ok && and.Op == token.LAND && (asks(and.X) || asks(and.Y))
	}
	switch n := w.parent(1).(type) {
	case *ast.CaseClause:
		return len(n.List) == 1 && asks(n.List[0])
	case *ast.BlockStmt:
		cond, ok := w.parent(2).(*ast.IfStmt)
		return ok && cond.Body == n && asks(cond.Cond)
	}
	return false
}

// parent is an ancestor: 0 the parent, 1 that one's parent.
func (w *walk) parent(above int) ast.Node {
	if above >= len(w.path) {
		return nil
	}
	return w.path[len(w.path)-1-above]
}

func (w *walk) isLeastTime(n ast.Expr) bool {
	b, ok := w.parent(0).(*ast.BinaryExpr)
	return ok && isOrder(b.Op) && isType(w.info.TypeOf(n), "time.Duration")
}

// isClockTime: compared with zero it may have been set to zero, and that border can be hit.
func (w *walk) isClockTime(e, beside ast.Expr) bool {
	t := w.info.TypeOf(e)
	isTime := isType(t, "time.Duration") || isType(t, "time.Time")
	return isTime && !isNumber(beside) && w.asksClock(e)
}

func isOrder(op token.Token) bool {
	return op == token.LSS || op == token.LEQ || op == token.GTR || op == token.GEQ
}

func (w *walk) onlyFrees(call *ast.CallExpr) bool {
	t := w.info.TypeOf(call.Fun)
	if lastName(call.Fun) == "stop" || isType(t, "context.CancelFunc") || isType(t, "context.CancelCauseFunc") {
		return true // vet checks these
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Stop" {
		return false
	}
	name, ok := f.X.(*ast.Ident)
	return ok && strings.Contains(w.src, name.Name+" := time.NewTi") // a timer or a ticker
}

func isType(t types.Type, name string) bool { return t != nil && t.String() == name }
