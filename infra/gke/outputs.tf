output "credentials" {
  description = "Command that writes the kubeconfig."
  value       = "gcloud container clusters get-credentials ${var.name} --zone ${var.zone} --project ${var.project}"
}
