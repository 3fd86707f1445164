// Package openapi contains the schemas of Kubernetes' own types, which the API server needs to serve its specification.
// The build scripts of Kubernetes generate 2 MB of Go code for them, which takes long to generate and to compile. This
// package reads them from swagger.json, the specification in the source package.
package openapi

import (
	_ "embed"
	"encoding/json"
	"regexp"
	"strings"
	"sync"

	"k8s.io/kube-openapi/pkg/common"
)

//go:embed swagger.json
var specification []byte

var (
	once        sync.Once
	definitions map[string]common.OpenAPIDefinition
	reference   = regexp.MustCompile(`"#/definitions/([^"]+)"`)
)

// typeName returns the Go type of a schema: k8s.io/api/core/v1.Pod for io.k8s.api.core.v1.Pod.
func typeName(schema string) string {
	path := strings.Split(strings.TrimPrefix(schema, "io.k8s."), ".")
	last := len(path) - 1
	return "k8s.io/" + strings.Join(path[:last], "/") + "." + path[last]
}

func parse() {
	var document struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(specification, &document); err != nil {
		panic(err)
	}
	definitions = make(map[string]common.OpenAPIDefinition)
	for name, text := range document.Definitions {
		var definition common.OpenAPIDefinition
		if err := json.Unmarshal(text, &definition.Schema); err != nil {
			panic(err)
		}
		for _, match := range reference.FindAllSubmatch(text, -1) {
			definition.Dependencies = append(definition.Dependencies, typeName(string(match[1])))
		}
		definitions[typeName(name)] = definition
	}
	// The specification contains the fields of these types only as parameters of requests, not as schemas.
	for _, name := range []string{"NodeProxy", "PodAttach", "PodExec", "PodPortForward", "PodProxy", "ServiceProxy"} {
		var definition common.OpenAPIDefinition
		definition.Schema.Type = []string{"object"}
		definitions["k8s.io/api/core/v1."+name+"Options"] = definition
	}
}

// GetOpenAPIDefinitions returns the schemas by the Go types that they describe. Their references are already complete.
func GetOpenAPIDefinitions(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	once.Do(parse)
	return definitions
}
