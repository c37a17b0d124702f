package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// defaultTag is the tag that is meant where none is written, as for container tools.
const defaultTag = "latest"

// Lengths of the distribution specification (spec.md, "Pulling manifests").
const (
	maxRepository = 255
	maxTag        = 128
)

// parseRegistry reads [HOST/]REPOSITORY[:TAG][@DIGEST]. A first part without a
// dot or port, that isn't localhost, belongs to the repository: a name without a
// host is of the registry that container tools take for such names.
func parseRegistry(s string) (Ref, error) {
	r := Ref{kind: KindRegistry}
	rest, digest, pinned := strings.Cut(s, "@")
	if pinned {
		var err error
		if r.digest, err = ParseDigest(digest); err != nil {
			return Ref{}, err
		}
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		if r.tag = rest[i+1:]; !isTag(r.tag) {
			return Ref{}, fmt.Errorf("tag %q: want up to %d letters, digits, '_', '.' and '-', the first no '.' or '-'", r.tag, maxTag)
		}
		rest = rest[:i]
	}
	host, path, found := strings.Cut(rest, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, path = "", rest
	}
	isNoPart := func(s string) bool { return !isPart(s) }
	if host != "" && !isHost(host) || slices.ContainsFunc(strings.Split(path, "/"), isNoPart) {
		return Ref{}, errors.New("want host, the absolute path of a root directory, sha256:…, std:NAME, or an image such as debian:12" +
			" (lower case; dir:, oci-layout:, docker-archive: and rootfs-tar: go before a path)")
	}
	if r.name = strings.TrimPrefix(host+"/"+path, "/"); len(r.name) > maxRepository {
		return Ref{}, fmt.Errorf("a repository's name has at most %d bytes", maxRepository)
	}
	if slices.Contains([]string{KindDir.String(), KindLayout.String(), KindArchive.String(), KindTar.String(), KindStandard.String(), "sha256"}, r.name) {
		return Ref{}, fmt.Errorf("%s: is what stands before something else; for a repository of that name write its host too", r.name)
	}
	if r.tag == "" && !pinned {
		r.tag = defaultTag
	}
	return r, nil
}

// isHost accepts a lower-case host name or address, with or without a port.
func isHost(s string) bool {
	if rest, ok := strings.CutPrefix(s, "["); ok { // IPv6
		address, port, found := strings.Cut(rest, "]")
		return found && address != "" && strings.Trim(address, "0123456789abcdef:.") == "" && (port == "" || port[0] == ':' && isPort(port[1:]))
	}
	name, port, hasPort := strings.Cut(s, ":")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, lowerAlphanumeric+"-") != "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return !hasPort || isPort(port)
}

func isPort(s string) bool { return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == "" }

const lowerAlphanumeric = "abcdefghijklmnopqrstuvwxyz0123456789"

// isPart accepts one part of a repository's path: runs of lower-case letters
// and digits with one '.', one or two '_', or any number of '-' between them.
func isPart(s string) bool {
	separator := ""
	for i := range len(s) {
		if strings.IndexByte(lowerAlphanumeric, s[i]) < 0 {
			separator += s[i : i+1]
			continue
		}
		if separator != "" && separator != "." && separator != "_" && separator != "__" && strings.Trim(separator, "-") != "" || separator != "" && i == len(separator) {
			return false
		}
		separator = ""
	}
	return s != "" && separator == ""
}

func isTag(s string) bool {
	letters := lowerAlphanumeric + "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return s != "" && len(s) <= maxTag && strings.Trim(s, letters+".-") == "" && strings.IndexByte(letters, s[0]) >= 0
}

// Repository returns host, if one was given, and path of a registry's
// repository; ok is false for anything else.
func (r Ref) Repository() (name string, ok bool) {
	if r.kind != KindRegistry {
		return "", false
	}
	return r.name, true
}

// At is the reference to the content d of the repository that r names, without
// the tag. For anything but a registry it is the image d of the local store.
func (r Ref) At(d Digest) Ref {
	if r.kind != KindRegistry {
		return Stored(d)
	}
	return Ref{kind: KindRegistry, name: r.name, digest: d}
}
