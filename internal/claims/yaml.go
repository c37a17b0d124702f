package claims

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML reads a list of claims, one claim, or a document for each.
func parseYAML(data []byte, most int, yield func(item) bool) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if err == io.EOF {
			return
		}
		if err != nil {
			yield(item{err: fmt.Errorf("%w; nothing after it was read", err)})
			return
		}
		if !document(&doc, most, yield) {
			return
		}
	}
}

// document yields the claims of one document; one without content has none.
func document(doc *yaml.Node, most int, yield func(item) bool) bool {
	if len(doc.Content) == 0 {
		return true
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return true
	}
	nodes := []*yaml.Node{root}
	if root.Kind == yaml.SequenceNode {
		nodes = root.Content
	}
	for _, n := range nodes {
		it := item{line: n.Line}
		w := jsonWriter{most: most}
		if it.err = w.value(n, 0); it.err == nil {
			it.raw = w.out.Bytes()
		}
		if !yield(it) {
			return false
		}
	}
	return true
}

// jsonWriter writes YAML nodes as JSON, aliases as what they stand for, within
// the size of a claim, so that aliases of aliases can't fill the memory.
type jsonWriter struct {
	out  bytes.Buffer
	most int
}

func (w *jsonWriter) value(n *yaml.Node, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("line %d: nested deeper than %d levels", n.Line, maxDepth)
	}
	if w.out.Len() > w.most {
		return fmt.Errorf("line %d: with its aliases written out the claim is %w of %d bytes", n.Line, errTooLong, w.most)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, depth+1)
	case yaml.ScalarNode:
		return w.scalar(n)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, child := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(child, depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
		return nil
	case yaml.MappingNode:
		return w.mapping(n, depth)
	case yaml.DocumentNode: // never inside a document
	}
	return fmt.Errorf("line %d: not a mapping, list or scalar", n.Line)
}

func (w *jsonWriter) mapping(n *yaml.Node, depth int) error {
	if tag := n.ShortTag(); tag != "!!map" {
		return fmt.Errorf("line %d: a mapping can't be %s", n.Line, tag)
	}
	w.out.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if tag := key.ShortTag(); key.Kind != yaml.ScalarNode || tag != "!!str" {
			return fmt.Errorf("line %d: the key %q is not a string; quote it", key.Line, key.Value)
		}
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.out.Write(encode(key.Value))
		w.out.WriteByte(':')
		if err := w.value(value, depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

func (w *jsonWriter) scalar(n *yaml.Node) error {
	var v any
	var err error
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp":
		v = n.Value
	case "!!null":
	case "!!bool":
		var b bool
		err = n.Decode(&b)
		v = b
	case "!!int", "!!float":
		v, err = number(n)
	default:
		err = fmt.Errorf("the tag %s has no meaning here", tag)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	w.out.Write(encode(v))
	return nil
}

// number keeps a number as it is written where JSON can.
func number(n *yaml.Node) (json.RawMessage, error) {
	if json.Valid([]byte(n.Value)) {
		return json.RawMessage(n.Value), nil
	}
	var i int64
	if err := n.Decode(&i); err == nil && !strings.ContainsAny(n.Value, ".eE") {
		return encode(i), nil
	}
	var f float64
	if err := n.Decode(&f); err != nil {
		return nil, err
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errors.New("a number that is not finite has no meaning here")
	}
	return encode(f), nil
}
