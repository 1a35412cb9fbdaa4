#include "textflag.h"

// func framePointers(pcs *[9]uintptr, from unsafe.Pointer)
TEXT ·framePointers(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ pcs+0(FP), DI
	MOVQ from+8(FP), SI
	TESTQ SI, SI
	CMOVQEQ BP, SI
	MOVQ $9, CX
next:
	MOVQ 8(SI), AX // the return address lies above the caller's frame pointer
	MOVQ AX, (DI)
	MOVQ (SI), AX
	CMPQ AX, SI // outer frames lie higher; the outermost has zero
	JLS  done
	MOVQ AX, DX
	SUBQ SI, DX
	CMPQ DX, $0x4000000 // too far for a frame: C has called back, and the next frame pointer is its, or no pointer at all
	JHI  done
	MOVQ AX, SI
	ADDQ $8, DI
	DECQ CX
	JNZ  next
done:
	RET
