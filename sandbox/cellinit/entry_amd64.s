#include "textflag.h"

// enterContained is an entry point as the kernel calls it: the stack pointer is at
// the arguments, and there is no other state. Go's code looks for its goroutine at
// -8(FS), though what is called here makes no use of it.
TEXT ·enterContained(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	ANDQ	$~15, SP
	SUBQ	$256, SP
	MOVQ	$0, 56(SP)
	LEAQ	64(SP), SI
	MOVQ	$0x1002, DI	// ARCH_SET_FS
	MOVQ	$158, AX	// SYS_arch_prctl
	SYSCALL
	CALL	·runContained(SB)
	INT	$3

DATA ·containedPC(SB)/8, $·enterContained(SB)
GLOBL ·containedPC(SB), RODATA, $8
