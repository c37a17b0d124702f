//go:build linux

package cellinit

import (
	"os"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

func TestMain(m *testing.M) { os.Exit(host.Main(m)) }
