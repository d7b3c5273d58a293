// Renders snippets with Go's own text/template and sprig, so that the tests can compare without Go.
//
//	GO111MODULE=off GOPATH=<folder with sprig> go run main.go ../snippets.txt ../data.json > ../expected.jsonl
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
)

type Port struct {
	Name          string `json:"name,omitempty"`
	HostPort      int32  `json:"hostPort,omitempty"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol,omitempty"`
}

type Container struct {
	Name       string `json:"name"`
	Image      string `json:"image,omitempty"`
	Ports      []Port `json:"ports,omitempty"`
	Privileged *bool  `json:"privileged,omitempty"`
	Count      *int64 `json:"count,omitempty"`
}

type Pod struct {
	Name       string            `json:"name,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Containers []Container       `json:"containers"`
	One        *Container        `json:"one,omitempty"`
	None       *Container        `json:"none,omitempty"`
	Grace      int64             `json:"grace,omitempty"`
	Ready      bool              `json:"ready,omitempty"`
}

type Mode int32

func (m Mode) String() string { return [...]string{"REDIRECT", "TPROXY", "NONE"}[m] }

type Root struct {
	V    map[string]any
	M    map[string]string
	NilM map[string]string
	Pod  Pod
	Mode Mode
	Zero Mode
	N    int64
	I    int
}

type result struct {
	Name     string  `json:"name"`
	Template string  `json:"template"`
	Output   *string `json:"output,omitempty"`
	Error    *string `json:"error,omitempty"`
}

func render(text string, data any) (out string, err error) {
	t, err := template.New("t").Funcs(sprig.TxtFuncMap()).Parse(text)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = t.Execute(&b, data)
	return b.String(), err
}

func main() {
	snippets, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	raw, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	for _, block := range strings.Split("\n"+string(snippets), "\n=== ")[1:] {
		name, text, _ := strings.Cut(block, "\n")
		root := Root{Mode: 1, N: 64, I: 5}
		if err := json.Unmarshal(raw, &root); err != nil {
			panic(err)
		}
		r := result{Name: name, Template: strings.TrimSuffix(text, "\n")}
		out, err := render(r.Template, root)
		if err != nil {
			message := fmt.Sprint(err)
			r.Error = &message
		} else {
			r.Output = &out
		}
		if err := enc.Encode(r); err != nil {
			panic(err)
		}
	}
}
