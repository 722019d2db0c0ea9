// Package grafana reads a dashboard strictly: unknown fields are errors.
package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// Dashboard is as Grafana stores it: of its schema, version 39, only the parts used here are known.
type Dashboard struct {
	UID                  string     `json:"uid"`
	Title                string     `json:"title"`
	Description          string     `json:"description"`
	Tags                 []string   `json:"tags"`
	SchemaVersion        int        `json:"schemaVersion"`
	Version              int        `json:"version"`
	Editable             bool       `json:"editable"`
	GraphTooltip         int        `json:"graphTooltip"`
	FiscalYearStartMonth int        `json:"fiscalYearStartMonth"`
	LiveNow              bool       `json:"liveNow"`
	Refresh              string     `json:"refresh"`
	Timezone             string     `json:"timezone"`
	WeekStart            string     `json:"weekStart"`
	Time                 Range      `json:"time"`
	Timepicker           struct{}   `json:"timepicker"`
	Links                []Link     `json:"links"`
	Annotations          Noted      `json:"annotations"`
	Templating           Templating `json:"templating"`
	Panels               []Panel    `json:"panels"`
}

// Range is the time shown.
type Range struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Link is at the head of a dashboard.
type Link struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	URL         string   `json:"url"`
	Icon        string   `json:"icon"`
	Tooltip     string   `json:"tooltip"`
	Tags        []string `json:"tags"`
	TargetBlank bool     `json:"targetBlank"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

// Noted has the annotations.
type Noted struct {
	List []Annotation `json:"list"`
}

// Annotation marks moments in all panels.
type Annotation struct {
	Name        string     `json:"name"`
	Datasource  Datasource `json:"datasource"`
	Enable      bool       `json:"enable"`
	Hide        bool       `json:"hide"`
	IconColor   string     `json:"iconColor"`
	Expr        string     `json:"expr"`
	TitleFormat string     `json:"titleFormat"`
	Step        string     `json:"step"`
}

// Templating has the variables.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable has text as Query for a data source, and a struct for a query.
type Variable struct {
	Name        string          `json:"name"`
	Label       string          `json:"label"`
	Description string          `json:"description,omitempty"`
	Type        string          `json:"type"`
	Datasource  *Datasource     `json:"datasource,omitempty"`
	Query       json.RawMessage `json:"query"`
	Definition  string          `json:"definition,omitempty"`
	Refresh     int             `json:"refresh"`
	Sort        int             `json:"sort,omitempty"`
	Multi       bool            `json:"multi"`
	IncludeAll  bool            `json:"includeAll"`
	AllValue    string          `json:"allValue,omitempty"`
	Current     struct{}        `json:"current"`
	Options     []struct{}      `json:"options"`
	Hide        int             `json:"hide"`
	Regex       string          `json:"regex"`
	SkipURLSync bool            `json:"skipUrlSync"`
}

// Datasource is named by its uid.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Panel may be a row. A closed row contains its panels, an open row is followed by them.
type Panel struct {
	ID              int             `json:"id"`
	Type            string          `json:"type"`
	Title           string          `json:"title"`
	Description     string          `json:"description"`
	Datasource      *Datasource     `json:"datasource"`
	GridPos         GridPos         `json:"gridPos"`
	FieldConfig     *FieldConfig    `json:"fieldConfig"`
	Options         json.RawMessage `json:"options"` // each type has its own
	Targets         []Target        `json:"targets"`
	Transformations json.RawMessage `json:"transformations"`
	Collapsed       bool            `json:"collapsed"`
	Panels          []Panel         `json:"panels"`
}

// GridPos is on a grid of 24 columns.
type GridPos struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// FieldConfig is how values are displayed.
type FieldConfig struct {
	Defaults  Defaults   `json:"defaults"`
	Overrides []struct{} `json:"overrides"`
}

// Defaults apply to all values of a panel.
type Defaults struct {
	Unit       string          `json:"unit"`
	Min        *float64        `json:"min"`
	Decimals   *int            `json:"decimals"`
	Thresholds Thresholds      `json:"thresholds"`
	Mappings   json.RawMessage `json:"mappings"`
	Custom     json.RawMessage `json:"custom"`
}

// Thresholds change the colour. The first has no value.
type Thresholds struct {
	Mode  string `json:"mode"`
	Steps []struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"`
	} `json:"steps"`
}

// Target is a query.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
	Range        *bool      `json:"range"`
}

// Read reads a dashboard.
func Read(file string) (d Dashboard, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return d, fmt.Errorf("grafana: %w", err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil {
		return d, fmt.Errorf("grafana: %s: %w", file, err)
	}
	return d, nil
}

// All returns panels and rows, including those in closed rows.
func (d Dashboard) All() (all []Panel) {
	for _, p := range d.Panels {
		all = append(all, p)
		all = append(all, p.Panels...)
	}
	return all
}
