// Renders a chart as `helm template` does, and converts YAML to JSON. It is Helm's template engine, Go's text/template,
// with the two functions that the chart uses.
//
//	helm_template CHART NAMESPACE VALUES   the objects of the chart with these values (a JSON object) in place of the defaults
//	helm_template                          the documents of the standard input
//
// Prints a JSON list of objects.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func documents(text []byte) (all []interface{}) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document interface{}
		err := decoder.Decode(&document)
		if err == io.EOF {
			return all
		}
		check(err)
		if document != nil {
			all = append(all, document)
		}
	}
}

func readYaml(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	check(err)
	return documents(text)[0].(map[string]interface{})
}

func render(chart, namespace, overrides string) (all []interface{}) {
	values := readYaml(filepath.Join(chart, "values.yaml"))
	var replaced map[string]interface{}
	check(json.Unmarshal([]byte(overrides), &replaced))
	for key, value := range replaced {
		values[key] = value
	}
	about := readYaml(filepath.Join(chart, "Chart.yaml"))
	context := map[string]interface{}{
		"Values":  values,
		"Release": map[string]interface{}{"Name": "adaptdl", "Namespace": namespace},
		"Chart":   map[string]interface{}{"AppVersion": about["appVersion"]},
	}
	functions := template.FuncMap{
		"toJson": func(value interface{}) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"replace": func(old, with, text string) string { return strings.ReplaceAll(text, old, with) },
	}
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*.yaml"))
	check(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		parsed, err := template.New(path).Option("missingkey=zero").Funcs(functions).Parse(string(text))
		check(err)
		var out bytes.Buffer
		check(parsed.Execute(&out, context))
		all = append(all, documents(out.Bytes())...)
	}
	return all
}

func main() {
	var all []interface{}
	if len(os.Args) == 4 {
		all = render(os.Args[1], os.Args[2], os.Args[3])
	} else {
		text, err := io.ReadAll(os.Stdin)
		check(err)
		all = documents(text)
	}
	check(json.NewEncoder(os.Stdout).Encode(all))
}
