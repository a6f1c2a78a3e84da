// The frozen heap (docs/decisions/0035): the engine's memory after all modules of the plugins were evaluated is a part
// of the executable. scripts/engine.ts links the executable three times. The first link has room for any heap, and
// tells how much the heap needs. The second has room for that much, and writes the heap to a file. The third has this
// file in place of the room. Nothing else differs, and the executable is loaded at a fixed address. So each address in
// the heap is right in the third as well.
#include "heap.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

extern const size_t heap_size;
static bool is_freezing;
// The pieces of the heap that were given back. The first word of each is the address of the next.
static void *given_back;

static bool is_frozen(const void *piece) {
  return (uintptr_t)piece - (uintptr_t)&heap < heap_size;
}

// The size of a piece of the heap stands in front of it. A piece begins at a multiple of 16 bytes, as malloc(3) has it.
static size_t *size_of(const void *piece) {
  return (size_t *)piece - 2;
}

// The engine does not check each allocation, and errors of one without memory mislead. So the first allocation that
// fails ends the process. What an ADD has made until then stays for DEL, as after a SIGKILL.
static void *checked(void *memory) {
  if (!memory) no_memory();
  return memory;
}

static void *take(void *unused, size_t wanted) {
  if (!is_freezing) return checked(malloc(wanted));
  size_t size = (wanted + 15) & ~(size_t)15;
  for (void **at = &given_back; *at; at = *at) {
    void *piece = *at;
    if (*size_of(piece) < size || *size_of(piece) > size + size / 8 + 32) continue;
    *at = *(void **)piece;
    return piece;
  }
  if (heap.used + 16 + size > heap_size) no_memory();
  void *piece = (char *)&heap + heap.used + 16;
  *size_of(piece) = size;
  heap.used += 16 + size;
  return piece;
}

static void *take_zeros(void *unused, size_t count, size_t size) {
  if (!is_freezing) return checked(calloc(count, size));
  return memset(take(unused, count * size), 0, count * size);
}

static void give_back(void *unused, void *piece) {
  if (!is_frozen(piece)) return free(piece);
  if (!is_freezing) return;
  *(void **)piece = given_back;
  given_back = piece;
}

static void *resize(void *unused, void *piece, size_t size) {
  if (!piece) return take(unused, size);
  if (!is_frozen(piece)) return checked(realloc(piece, size));
  if (size <= *size_of(piece)) return piece;
  void *larger = memcpy(take(unused, size), piece, *size_of(piece));
  give_back(unused, piece);
  return larger;
}

static size_t usable_size(const void *piece) {
  return is_frozen(piece) ? *size_of(piece) : malloc_usable_size((void *)piece);
}

// The engine draws the seed of its hashes from the clock (the linker's --wrap). In a frozen heap it is always the same,
// so that two builds have the same bytes.
int __real_gettimeofday(struct timeval *time, void *zone);
int __wrap_gettimeofday(struct timeval *time, void *zone);
int __wrap_gettimeofday(struct timeval *time, void *zone) {
  if (!is_freezing) return __real_gettimeofday(time, zone);
  *time = (struct timeval){ .tv_sec = 1 };
  return 0;
}

JSRuntime *new_runtime(bool freezes) {
  static const JSMallocFunctions functions = { take_zeros, take, give_back, resize, usable_size };
  is_freezing = freezes;
  if (freezes) heap.used = (sizeof heap + 15) & ~(size_t)15;
  return JS_NewRuntime2(&functions, NULL);
}

// The engine remembers where its stack begins, which differs from run to run. Here it is told a place that is the same
// in each build. native/host.c tells it the true one at the start of a call.
static void forget_stack(void) {
  JS_UpdateStackTop(JS_GetRuntime(heap.ctx));
}

static void forget_stack_elsewhere(void) {
  static char stack[1 << 16];
  static ucontext_t here, there;
  getcontext(&there);
  there.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = sizeof stack };
  there.uc_link = &here;
  makecontext(&there, forget_stack, 0);
  swapcontext(&here, &there);
}

bool write_heap(const char *file) {
  forget_stack_elsewhere();
  FILE *to = fopen(file, "wb");
  return to && fwrite(&heap, 1, heap.used, to) == heap.used && fclose(to) == 0;
}
