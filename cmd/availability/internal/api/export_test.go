package api

// Routes are "METHOD /path" of all that there are.
func Routes() (all []string) {
	for _, r := range (&API{}).routes() {
		all = append(all, r.method+" "+r.path)
	}
	return all
}

// Problems are the names of all kinds of problems.
func Problems() (all []string) {
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}

// Description returns the OpenAPI document.
func Description() []byte { return openAPI }
