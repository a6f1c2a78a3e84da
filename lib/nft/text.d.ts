/** A file that is imported as its text, and lies inside the executable. */
declare module '*.nft' {
  const text: string
  export default text
}
declare module '*.conflist' {
  const text: string
  export default text
}
