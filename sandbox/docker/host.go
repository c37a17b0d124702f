//go:build linux

package docker

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/docker/client"
)

// daemonHost is the address of the daemon that the docker command would use:
// DOCKER_HOST, else that of the context that DOCKER_CONTEXT or the client's
// configuration names, else the usual one.
func daemonHost() (string, error) {
	if host := os.Getenv(client.EnvOverrideHost); host != "" {
		return host, nil
	}
	name := os.Getenv("DOCKER_CONTEXT")
	if name == "" {
		file, err := config.Load(config.Dir())
		if err != nil {
			return "", fmt.Errorf("docker's configuration: %w", err)
		}
		name = file.CurrentContext
	}
	if name == "" || name == "default" {
		return client.DefaultDockerHost, nil
	}
	type endpoint struct{ Host string }
	contexts := store.New(filepath.Join(config.Dir(), "contexts"),
		store.NewConfig(func() any { return &map[string]any{} }, store.EndpointTypeGetter("docker", func() any { return &endpoint{} })))
	meta, err := contexts.GetMetadata(name)
	if err != nil {
		return "", fmt.Errorf("docker context %q: %w", name, err)
	}
	if found, ok := meta.Endpoints["docker"].(endpoint); ok {
		return cmp.Or(found.Host, client.DefaultDockerHost), nil
	}
	return "", fmt.Errorf("docker context %q has no endpoint for docker", name)
}
