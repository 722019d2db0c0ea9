package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// flips are the operators that are put in the place of others. Of an order the border is moved and
// not the direction: the border is what tests miss.
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
//   - A condition is negated, an operator is flipped, true and false are swapped, a whole number is
//     changed by one.
//   - A statement is dropped: a call, an assignment, break, continue, defer, go, a send, an else.
//   - One of the results of a return is the zero value: nil for an error.
//
// Left alone is what no test should look at: logs, the text of errors, descriptions of metrics,
// failpoints, capacities, and values that somebody chose (constants, durations in seconds). Locks
// are left alone too: the race detector is for them.
func goMutants(src string) ([]mutant, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	w := &walk{src: src, at: func(p token.Pos) int { return fset.Position(p).Offset }}
	ast.Inspect(f, w.visit)
	return w.found, nil
}

// walk goes through a syntax tree.
type walk struct {
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
	switch n := n.(type) {
	case *ast.BlockStmt:
		w.statements(n.List)
	case *ast.CaseClause:
		w.statements(n.Body)
	case *ast.CommClause:
		w.statements(n.Body)
	case *ast.IfStmt:
		w.condition(n.Cond)
		if n.Else != nil {
			w.add(n.Body.End(), n.Else.End(), "")
		}
	case *ast.ForStmt:
		if n.Cond != nil {
			w.condition(n.Cond)
		}
	case *ast.BinaryExpr:
		w.operator(n.OpPos, n.Op)
	case *ast.AssignStmt:
		w.operator(n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		w.operator(n.TokPos, n.Tok)
	case *ast.Ident:
		switch n.Name {
		case "true":
			w.replace(n, "false")
		case "false":
			w.replace(n, "true")
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil && n.Kind == token.INT && !w.chosen() {
			w.replace(n, strconv.FormatInt(v^1, 10)) // 0 and 1, 2 and 3, and so on
		}
	case *ast.ReturnStmt:
		w.results(n)
	}
	w.path = append(w.path, n)
	return true
}

// condition negates what is not a comparison for being equal: its operator is flipped anyhow.
func (w *walk) condition(cond ast.Expr) {
	if b, ok := cond.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	w.replace(cond, "!("+w.text(cond)+")")
}

// statements drops each that can be dropped.
func (w *walk) statements(list []ast.Stmt) {
	for _, s := range list {
		if w.skip(s) {
			continue
		}
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.BranchStmt, *ast.GoStmt, *ast.SendStmt:
			w.replace(s, "")
		case *ast.DeferStmt:
			if name := lastName(s.Call.Fun); name != "cancel" && name != "stop" { // vet sees to these
				w.replace(s, "")
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				w.replace(s, "")
			}
		}
	}
}

// results makes each result of a return the zero value of its type.
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
		return // none, or what a call returns
	}
	for i, expr := range ret.Results {
		zero, now := w.zero(types[i]), w.text(expr)
		if zero == now || strings.HasSuffix(now, "{}") || now == "true" || now == "false" || zero == "0" && isNumber(expr) {
			continue // it is zero, or is changed as what it is
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

// skip tells of what nothing is changed in.
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
		return strings.Contains(w.text(n), "slog.") || ok && w.logs(call)
	case *ast.BlockStmt: // with nothing in it but logs
		return len(n.List) > 0 && !slices.ContainsFunc(n.List, func(s ast.Stmt) bool { return !w.skip(s) })
	case *ast.IfStmt:
		return w.skip(n.Body) && (n.Else == nil || w.skip(n.Else)) && n.Init == nil
	case *ast.CallExpr:
		return w.skipCall(n)
	}
	return false
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
	of, _, _ := strings.Cut(fun, ".")
	return w.logs(call) || of == "failpoint" || of == "prometheus" || fun == "errors.New" || fun == "fmt.Errorf"
}

// logs tells a call of a logger from others.
func (w *walk) logs(call *ast.CallExpr) bool {
	name := lastName(call.Fun)
	of := strings.ToLower(strings.TrimSuffix(w.text(call.Fun), name))
	does := slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "With"}, name)
	return does && strings.Contains(of, "log")
}

// chosen tells that a number is one that somebody chose: it counts seconds, for instance.
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
	_, ok := e.(*ast.BasicLit)
	return ok
}
