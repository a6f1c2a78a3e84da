// The frozen heap: see heap.c.
#include <quickjs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How the heap begins. An executable without a frozen heap has zeros there.
typedef struct { JSContext *ctx; JSModuleDef *entry; size_t used; } Heap;
extern Heap heap;

// Ends the process with an error object. native/host.c has it.
_Noreturn void no_memory(void);
// A runtime. With `freezes`, all its memory is taken from the heap.
JSRuntime *new_runtime(bool freezes);
// Writes the heap to a file. Returns false after a failure.
bool write_heap(const char *file);
